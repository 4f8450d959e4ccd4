SELECT auction, bidder, 0.908 * price AS price, channel, date_time FROM bid
