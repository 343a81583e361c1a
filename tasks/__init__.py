"""SeqIO registrations."""
