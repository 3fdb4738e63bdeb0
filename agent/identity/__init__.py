"""Who this device is to its fleet: a key made here, a certificate for it, and the board they belong to."""
