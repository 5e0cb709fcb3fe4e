"""What logging costs on this machine: ways of logging beside each other, each cell in a process of its own."""
