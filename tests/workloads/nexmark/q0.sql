SELECT auction, bidder, price, channel, date_time FROM bid
