"""Write an image to a card: never to a disk that is in use, and never without reading everything back."""
