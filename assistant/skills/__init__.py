"""What is answered without the LLM: one function per intent."""
