"""Disks, partitions and FAT file systems as files hold them: read, written in an order that a power cut cannot break, and made."""
