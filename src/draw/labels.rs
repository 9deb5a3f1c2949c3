//! Names beside what they name, kept from lying on each other.

use super::canvas::{At, text_width};

/// Returns heights as near to the wanted ones as a distance of `apart` between neighbours and the ends allow.
pub(super) fn spread(wanted: &[f64], apart: f64, (top, bottom): (f64, f64)) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    let mut placed: Vec<f64> = order.iter().map(|i| wanted[*i]).collect();
    // Pushing down then up settles a chain of labels; a few rounds centre it on what it names.
    for _ in 0..60 {
        let mut moved = false;
        for i in 1..placed.len() {
            let gap = placed[i] - placed[i - 1];
            if gap < apart - 1e-6 {
                let shift = (apart - gap) / 2.0;
                placed[i - 1] -= shift;
                placed[i] += shift;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    let mut floor = top;
    for y in &mut placed {
        *y = y.max(floor);
        floor = *y + apart;
    }
    let mut ceiling = bottom;
    for y in placed.iter_mut().rev() {
        *y = y.min(ceiling);
        ceiling = *y - apart;
    }
    let mut heights = vec![0.0; wanted.len()];
    for (y, i) in placed.into_iter().zip(order) {
        heights[i] = y;
    }
    heights
}

/// Boxes that a new name must not touch.
#[derive(Default)]
pub(super) struct Taken(Vec<(At, At)>);

impl Taken {
    /// Marks the surroundings of a point as taken.
    pub(super) fn point(&mut self, (x, y): At, radius: f64) {
        self.0.push(((x - radius, y - radius), (x + radius, y + radius)));
    }

    /// Marks the surroundings of a straight line as taken.
    pub(super) fn stretch(&mut self, from: At, to: At) {
        let steps = ((to.0 - from.0).hypot(to.1 - from.1) / 5.0).ceil().max(1.0);
        for step in 0..=steps as u32 {
            let t = f64::from(step) / steps;
            self.point((from.0 + (to.0 - from.0) * t, from.1 + (to.1 - from.1) * t), 2.5);
        }
    }

    /// Finds room for a name near a point, inside the bounds (left, top, right, bottom), and takes it. Returns
    /// the left middle of the name.
    pub(super) fn place(&mut self, text: &str, size: f64, point: At, bounds: [f64; 4]) -> At {
        let (width, height) = (text_width(text, size), size * 1.3);
        let mut best = (f64::INFINITY, (point.0 + 9.0, point.1));
        for distance in [9.0, 20.0, 34.0, 50.0] {
            for (dx, dy) in [
                (1.0, 0.0),
                (1.0, -0.8),
                (1.0, 0.8),
                (-1.0, 0.0),
                (-1.0, -0.8),
                (-1.0, 0.8),
                (0.0, -1.3),
                (0.0, 1.3),
            ] {
                let left = match dx {
                    d if d > 0.0 => point.0 + distance,
                    d if d < 0.0 => point.0 - distance - width,
                    _ => point.0 - width / 2.0,
                };
                let middle = point.1 + dy * distance;
                let (low, high) = ((left, middle - height / 2.0), (left + width, middle + height / 2.0));
                let out = (bounds[0] - low.0).max(0.0)
                    + (high.0 - bounds[2]).max(0.0)
                    + (bounds[1] - low.1).max(0.0)
                    + (high.1 - bounds[3]).max(0.0);
                let hidden: f64 = self.0.iter().map(|b| overlap(*b, (low, high))).sum();
                let penalty = hidden + 50.0 * out + distance * 0.5 + if dx > 0.0 { 0.0 } else { 2.0 };
                if penalty < best.0 {
                    best = (penalty, (left, middle));
                }
            }
        }
        let (left, middle) = best.1;
        self.0.push(((left, middle - height / 2.0), (left + width, middle + height / 2.0)));
        best.1
    }
}

fn overlap((a, b): (At, At), (c, d): (At, At)) -> f64 {
    let side = |a: f64, b: f64, c: f64, d: f64| (b.min(d) - a.max(c)).max(0.0);
    side(a.0, b.0, c.0, d.0) * side(a.1, b.1, c.1, d.1)
}
