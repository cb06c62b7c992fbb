"""A simulated vLLM server, for learning the tool and testing it. Nothing it emits is a measurement of a card."""
