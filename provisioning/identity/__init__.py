"""The fleet's authority: certificates for broker, services and devices, enrolment, and revocation."""
