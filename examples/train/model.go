package main

import (
	"math"
	"math/rand/v2"
)

// model is softmax regression with momentum: one layer, the least that learns. What
// matters here is that all of its state is exported, so that a checkpoint has it.
type model struct {
	Inputs, Classes int
	Weights, Biases []float32 // of each class in turn
	Velocity        []float32 // of Weights, then of Biases
}

func newModel(inputs, classes int, seed uint64) *model {
	m := &model{
		Inputs: inputs, Classes: classes,
		Weights: make([]float32, classes*inputs), Biases: make([]float32, classes),
		Velocity: make([]float32, classes*inputs+classes),
	}
	random := rand.New(rand.NewPCG(seed, 0))
	scale := 0.1 / math.Sqrt(float64(inputs))
	for i := range m.Weights {
		m.Weights[i] = float32(random.NormFloat64() * scale)
	}
	return m
}

// predict sets p to the probability of each class for the image x.
func (m *model) predict(p, x []float32) {
	most := float32(math.Inf(-1))
	for c := range p {
		sum := m.Biases[c]
		for i, w := range m.Weights[c*m.Inputs:][:m.Inputs] {
			sum += w * x[i]
		}
		p[c] = sum
		most = max(most, sum)
	}
	var total float32
	for c := range p {
		p[c] = float32(math.Exp(float64(p[c] - most)))
		total += p[c]
	}
	for c := range p {
		p[c] /= total
	}
}

// step learns from a batch, in place, and returns its mean loss.
func (m *model) step(images []float32, labels []int64, rate, momentum float32) float64 {
	gradient := make([]float32, len(m.Velocity))
	p := make([]float32, m.Classes)
	var loss float64
	for n, label := range labels {
		x := images[n*m.Inputs:][:m.Inputs]
		m.predict(p, x)
		loss -= math.Log(max(float64(p[label]), 1e-12))
		p[label]--
		for c, g := range p {
			row := gradient[c*m.Inputs:][:m.Inputs]
			for i, v := range x {
				row[i] += g * v
			}
			gradient[len(m.Weights)+c] += g
		}
	}
	scale := rate / float32(len(labels))
	for i, g := range gradient {
		m.Velocity[i] = momentum*m.Velocity[i] - scale*g
	}
	for i := range m.Weights {
		m.Weights[i] += m.Velocity[i]
	}
	for c := range m.Biases {
		m.Biases[c] += m.Velocity[len(m.Weights)+c]
	}
	return loss / float64(len(labels))
}

// right counts the images that get their labels.
func (m *model) right(images []float32, labels []int64) (n int) {
	p := make([]float32, m.Classes)
	for i, label := range labels {
		m.predict(p, images[i*m.Inputs:][:m.Inputs])
		best := 0
		for c := range p {
			if p[c] > p[best] {
				best = c
			}
		}
		if int64(best) == label {
			n++
		}
	}
	return n
}
