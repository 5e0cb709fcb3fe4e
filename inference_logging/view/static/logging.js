export function LoggingPage() { return null; }
