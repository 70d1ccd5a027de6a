"""Where models and weights come from: torchvision, timm, the user's own code, and files."""
