"""Pure rules of the palace: what is noise, how texts are cut, classified and located, and how layers are rendered."""
