"""Starting, proving and stopping servers: four engines behind one Protocol."""
