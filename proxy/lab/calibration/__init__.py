"""`crossover calibrate`: measures two backends against each other and says where the crossover is."""
