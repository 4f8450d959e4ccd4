SELECT auction, price FROM bid WHERE MOD(auction, 12) = 0
