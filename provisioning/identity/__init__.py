"""The fleet's authority: certificates, enrolment, and revocation.

Certificates are for broker, services and devices.
"""
