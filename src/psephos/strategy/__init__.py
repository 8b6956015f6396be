"""What to measure: strategies, their exact error, and the search for the best one."""
