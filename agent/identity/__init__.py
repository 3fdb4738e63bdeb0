"""The identity of this device in its fleet: its own key, a certificate, and the board that they belong to."""
