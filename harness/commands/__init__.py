"""The commands of ``bench`` by task: parse, call, print, exit code; heavy imports come late."""
