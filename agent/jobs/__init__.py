"""Jobs: the orders of the fleet's service, each carried out once, however often it is delivered."""
