"""The client measured against a source whose schedule is known: what it adds, and what Docker's port proxy adds."""
