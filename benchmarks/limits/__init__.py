"""What the scenarios about downstreams share: the provider that they call, its judge, and a chart."""
