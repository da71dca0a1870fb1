"""What `make programs` runs: bcc compiles bpf/ into the file that the package ships. Not part of the package."""
