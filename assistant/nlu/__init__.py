"""What people say, understood without a model: numbers, durations, names, slots, several requests in one sentence."""
