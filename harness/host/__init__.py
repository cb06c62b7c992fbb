"""Facts about the host, and the lock that keeps campaigns apart."""
