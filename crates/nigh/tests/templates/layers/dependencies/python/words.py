GREETINGS = {"en": "hello", "fr": "bonjour"}
