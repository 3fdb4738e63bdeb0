"""The fleet's authority: certificates for the broker, the services and the devices, tokens to join with, and who is out."""
