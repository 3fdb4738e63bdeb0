"""The fleet's service over HTTPS: enrolment, renewal and content, for boards."""
