//! From values to pixels: ends, ticks and the grid of a panel.

use plotters::{
    coord::{
        ranged1d::{BoldPoints, Ranged},
        types::RangedCoordf64,
    },
    style::text_anchor::{HPos, VPos},
};

use super::{
    Axis, DrawError, Mark, Panel, Scale,
    canvas::{AXIS, At, Canvas, Face, GRID, SOFT_TEXT, TEXT, text_width},
};

/// Most ticks that plotters may choose.
const MOST_TICKS: usize = 6;
const TICK_SIZE: f64 = 12.0;
const LABEL_SIZE: f64 = 12.5;
/// Room below the plot for ticks and the axis' label, pixels.
const BELOW: f64 = 50.0;
/// Room above the plot, with a title and without.
const ABOVE: (f64, f64) = (28.0, 10.0);

/// One axis on the screen.
pub(super) struct Ruler {
    scale: Scale,
    ends: (f64, f64),
    pixels: (f64, f64),
    ticks: Vec<(f64, String)>,
}

impl Ruler {
    fn new(axis: &Axis, values: &[f64], pixels: (f64, f64)) -> Self {
        let ends = axis.range.unwrap_or_else(|| ends(axis.scale, values));
        let ticks = if axis.ticks.is_empty() { ticks(axis, ends) } else { axis.ticks.clone() };
        Self { scale: axis.scale, ends, pixels, ticks }
    }

    /// Returns where a value lies; values past the ends lie on them.
    pub(super) fn at(&self, value: f64) -> f64 {
        let (low, high) = self.ends;
        let value = value.clamp(low, high);
        let part = match self.scale {
            Scale::Linear => (value - low) / (high - low),
            Scale::Log => (value / low).ln() / (high / low).ln(),
        };
        self.pixels.0 + (self.pixels.1 - self.pixels.0) * part
    }

    pub(super) fn ends(&self) -> (f64, f64) {
        self.ends
    }
}

/// A panel's plot: its axes' rulers and its corners.
pub(super) struct Plot {
    pub(super) x: Ruler,
    pub(super) y: Ruler,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Plot {
    /// Lays a panel's plot into the given box; `beside` pixels stay free at its right.
    pub(super) fn new(panel: &Panel, corner: At, size: At, beside: f64) -> Self {
        let (xs, ys) = values(panel);
        let above = if panel.title.is_empty() { ABOVE.1 } else { ABOVE.0 };
        let (top, bottom) = (corner.1 + above, corner.1 + size.1 - BELOW);
        let y = Ruler::new(&panel.y, &ys, (bottom, top));
        let widest = y.ticks.iter().map(|(_, text)| text_width(text, TICK_SIZE)).fold(0.0, f64::max);
        let left = corner.0 + widest + if panel.y.label.is_empty() { 14.0 } else { 38.0 };
        let right = corner.0 + size.0 - beside;
        Self { x: Ruler::new(&panel.x, &xs, (left, right)), y, left, right, top, bottom }
    }

    pub(super) fn at(&self, x: f64, y: f64) -> At {
        (self.x.at(x), self.y.at(y))
    }

    pub(super) fn frame(&self, canvas: &Canvas<'_>, panel: &Panel) -> Result<(), DrawError> {
        let tick = Face::new(TICK_SIZE, SOFT_TEXT);
        for (value, text) in &self.y.ticks {
            let y = self.y.at(*value);
            if !panel.y.no_grid {
                canvas.line(&[(self.left, y), (self.right, y)], GRID, 1.0)?;
            }
            canvas.text(text, (self.left - 8.0, y), tick.across(HPos::Right))?;
        }
        for (value, text) in &self.x.ticks {
            let x = self.x.at(*value);
            if !panel.x.no_grid {
                canvas.line(&[(x, self.top), (x, self.bottom)], GRID, 1.0)?;
                canvas.line(&[(x, self.bottom), (x, self.bottom + 4.0)], AXIS, 1.0)?;
            }
            canvas.text(text, (x, self.bottom + 14.0), tick.across(HPos::Center))?;
        }
        canvas.line(&[(self.left, self.bottom), (self.right, self.bottom)], AXIS, 1.0)?;
        let label = Face::new(LABEL_SIZE, TEXT).across(HPos::Center);
        let middle = f64::midpoint(self.left, self.right);
        canvas.text(&panel.x.label, (middle, self.bottom + 36.0), label)?;
        if !panel.y.label.is_empty() {
            let widest = self.y.ticks.iter().map(|(_, t)| text_width(t, TICK_SIZE)).fold(0.0, f64::max);
            let face = Face { turned: true, upright: VPos::Bottom, ..label };
            let x = self.left - widest - 13.0;
            canvas.text(&panel.y.label, (x, f64::midpoint(self.top, self.bottom)), face)?;
        }
        let title = Face { bold: true, ..Face::new(13.0, TEXT) };
        if panel.title.is_empty() {
            return Ok(());
        }
        canvas.text(&panel.title, (self.left, self.top - 14.0), title)
    }
}

/// Returns every value that a panel's axes must hold.
fn values(panel: &Panel) -> (Vec<f64>, Vec<f64>) {
    let (mut xs, mut ys) = (Vec::new(), Vec::new());
    for mark in &panel.marks {
        match mark {
            Mark::Line { points, .. } | Mark::ErrorBars { points, .. } => {
                xs.extend(points.iter().map(|p| p.x));
                ys.extend(points.iter().flat_map(|p| [p.low, p.value, p.high]));
            }
            Mark::Bars(bars) => {
                xs.extend(bars.iter().flat_map(|b| [b.x.0, b.x.1]));
                ys.extend(bars.iter().flat_map(|b| [b.y.0, b.y.1]));
            }
            Mark::Dots { points, .. } => {
                xs.extend(points.iter().map(|p| p.0));
                ys.extend(points.iter().map(|p| p.1));
            }
            Mark::Identity => {}
            Mark::Named { x, y, .. } => {
                xs.extend([x.0, x.1, x.2]);
                ys.extend([y.0, y.1, y.2]);
            }
            Mark::Steps { edges, heights, .. } => {
                xs.extend(edges);
                ys.extend(heights);
                ys.push(0.0);
            }
            Mark::Box { x, at, .. } => {
                xs.extend([x.0, x.1]);
                ys.extend(at);
            }
        }
    }
    (xs, ys)
}

fn ends(scale: Scale, values: &[f64]) -> (f64, f64) {
    let usable = values.iter().copied().filter(|v| v.is_finite() && (scale == Scale::Linear || *v > 0.0));
    let (low, high) =
        usable.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    if low > high {
        return (0.1, 1.0);
    }
    match scale {
        Scale::Log => (low / 1.15, high * 1.15),
        Scale::Linear => {
            let margin = if high > low { 0.06 * (high - low) } else { 0.05 * high.abs().max(1.0) };
            let near_zero = low >= 0.0 && low - margin < 0.25 * high;
            (if near_zero { 0.0 } else { low - margin }, high + margin)
        }
    }
}

fn ticks(axis: &Axis, ends: (f64, f64)) -> Vec<(f64, String)> {
    let values = match axis.scale {
        Scale::Linear => RangedCoordf64::from(ends.0..ends.1).key_points(BoldPoints(MOST_TICKS)),
        Scale::Log => log_ticks(ends),
    };
    let step = values.windows(2).map(|w| w[1] - w[0]).fold(f64::INFINITY, f64::min);
    values.into_iter().map(|value| (value, text(axis, value, step))).collect()
}

/// Returns 1, 2 and 5 times the powers of ten between the ends; over many decades the powers alone.
fn log_ticks((low, high): (f64, f64)) -> Vec<f64> {
    let decades = (high / low).log10();
    let digits: &[f64] = match decades {
        d if d < 1.2 => &[1.0, 2.0, 3.0, 5.0, 7.0],
        d if d < 2.5 => &[1.0, 3.0],
        _ => &[1.0],
    };
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let all = (first..=last).flat_map(|e| digits.iter().map(move |digit| digit * 10f64.powi(e)));
    all.filter(|v| (low * 0.999..=high * 1.001).contains(v)).collect()
}

fn text(axis: &Axis, value: f64, step: f64) -> String {
    let (value, step, unit) =
        if axis.percent { (value * 100.0, step * 100.0, "%") } else { (value, step, "") };
    let finest = if axis.scale == Scale::Log { value } else { step };
    // As many digits as tell neighbours apart: 0.05 needs two, 20 none.
    let digits = (0..6)
        .find(|d| (finest * 10f64.powi(*d)).fract().min(1.0 - (finest * 10f64.powi(*d)).fract()) < 1e-6);
    let digits = digits.unwrap_or(2) as usize;
    let value = if value == 0.0 { 0.0 } else { value };
    format!("{}{unit}", thousands(&format!("{value:.digits$}")))
}

/// Sets commas between groups of three digits.
pub(super) fn thousands(number: &str) -> String {
    let (whole, rest) = number.split_once('.').map_or((number, None), |(w, r)| (w, Some(r)));
    let digits: Vec<char> = whole.chars().collect();
    let mut text = String::new();
    for (i, digit) in digits.iter().enumerate() {
        let left = digits.len() - i;
        if i > 0 && left.is_multiple_of(3) && digits[i - 1] != '-' {
            text.push(',');
        }
        text.push(*digit);
    }
    rest.map_or_else(|| text.clone(), |rest| format!("{text}.{rest}"))
}
