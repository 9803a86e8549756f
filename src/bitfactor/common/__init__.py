"""What every room uses, and nothing else: errors, checks, results, whole files, machine, compiled core."""
