"""Units: how far boards of one type lie apart, which of them is sick, and on how many boards a figure of a board type rests."""
