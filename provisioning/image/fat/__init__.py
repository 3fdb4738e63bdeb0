"""FAT16 and FAT32 as they stand on boot partitions: read, written in an order that a power cut cannot break, and made."""
