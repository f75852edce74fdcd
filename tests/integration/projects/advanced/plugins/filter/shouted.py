class FilterModule:
    def filters(self):
        return {"shouted": lambda text: f"{text.upper()}!"}
