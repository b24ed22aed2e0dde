// Package photo paints pictures that cost a decoder what photographs cost it.
//
// A [Library] of textures is made once. [Library.Draw] draws the [Spec] of a numbered
// photograph (its size, its encoding, how much detail it has), and a [Painter]
// paints it.
//
// # The population
//
// It follows 250 photographs of ImageNet. Two thirds of them were scaled to 500
// pixels by one program (quality 96, 4:4:4); the others came as they were from the
// web (any size, mostly 4:2:0 at quality 60 to 95). spec.go has the numbers, and a
// test of the command compares the result with the photographs.
//
// # The scene
//
// Photographs have three properties that matter for coefficients: energy that falls
// with frequency (amplitude about 1/f^1.2, with a spread from image to image), edges
// that come from things before other things, and detail that is patchy, so that
// some blocks are nearly empty and others full. Things before things alone give the
// first two (the "dead leaves" model: Lee, Mumford and Huang 2001, "Occlusion models
// for natural images"). A scene is therefore a background and a few dozen
// shapes, painted back to front. Each has a colour, a gradient, a texture with an
// amplitude of its own, and a border as soft as its distance from the focus. Light
// that varies slowly and the sensor's noise go over all of it.
//
// # Promises
//
// The same seed and number give the same samples, on one architecture and with one
// version of Go.
package photo
