package entropy

func (d *Decoder) smooth() {}
