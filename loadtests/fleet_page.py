PART="fleet"
