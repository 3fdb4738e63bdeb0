"""The identity of this device in its fleet.

It is the device's own key, a certificate, and the board that they belong to.
"""
