//! Draws the marks of a panel.

use super::{
    Bar, DrawError, Ink, Mark, Panel, Scale, Spread,
    axes::Plot,
    canvas::{AXIS, At, Canvas, Face, WHITE, text_width},
    labels::{Taken, spread},
};

/// Font size of names beside lines and points.
const NAME_SIZE: f64 = 12.0;
/// Least distance between two names at line ends, pixels.
const NAME_STEP: f64 = 14.5;
/// From a line's end to its name.
const LEADER: f64 = 16.0;
const POINT_RADIUS: f64 = 3.6;

/// Returns the room that names at line ends need at the right of a panel.
pub(super) fn room_beside(panel: &Panel) -> f64 {
    let names = panel.marks.iter().filter_map(|mark| match mark {
        Mark::Line { label, .. } if !label.is_empty() => Some(text_width(label, NAME_SIZE) + LEADER + 6.0),
        _ => None,
    });
    names.fold(16.0, f64::max)
}

pub(super) fn draw(canvas: &Canvas<'_>, plot: &Plot, panel: &Panel) -> Result<(), DrawError> {
    for mark in &panel.marks {
        if let Mark::Line { points, ink, .. } = mark {
            band(canvas, plot, points, *ink)?;
        }
    }
    for mark in &panel.marks {
        one(canvas, plot, panel, mark)?;
    }
    line_names(canvas, plot, panel)?;
    point_names(canvas, plot, panel)
}

fn one(canvas: &Canvas<'_>, plot: &Plot, panel: &Panel, mark: &Mark) -> Result<(), DrawError> {
    match mark {
        Mark::Line { points, ink, shape, width, .. } => {
            let path: Vec<At> = points.iter().map(|p| plot.at(p.x, p.value)).collect();
            canvas.line(&path, *ink, *width)?;
            for at in path {
                canvas.shape(at, *shape, POINT_RADIUS + 0.3 * width, *ink)?;
            }
            Ok(())
        }
        Mark::Bars(bars) => bars.iter().try_for_each(|b| bar(canvas, plot, *b)),
        Mark::ErrorBars { points, ink } => points.iter().try_for_each(|p| {
            let (x, low, high) = (plot.x.at(p.x), plot.y.at(p.low), plot.y.at(p.high));
            canvas.line(&[(x, low), (x, high)], WHITE, 3.0)?;
            whisker(canvas, (x, low), (x, high), *ink)
        }),
        Mark::Dots { points, ink } => {
            let radius = if points.len() > 400 { 1.75 } else { 2.25 };
            points.iter().try_for_each(|p| canvas.dot(plot.at(p.0, p.1), radius, *ink, 0.3))
        }
        Mark::Identity => {
            let low = plot.x.ends().0.max(plot.y.ends().0);
            let high = plot.x.ends().1.min(plot.y.ends().1);
            if low < high { canvas.dashed(plot.at(low, low), plot.at(high, high), AXIS, 1.5) } else { Ok(()) }
        }
        Mark::Named { x, y, ink, shape, .. } => {
            let at = plot.at(x.1, y.1);
            canvas.line(&[(plot.x.at(x.0), at.1), (plot.x.at(x.2), at.1)], *ink, 1.0)?;
            canvas.line(&[(at.0, plot.y.at(y.0)), (at.0, plot.y.at(y.2))], *ink, 1.0)?;
            canvas.shape(at, *shape, POINT_RADIUS + 1.4, *ink)
        }
        Mark::Steps { edges, heights, ink } => steps(canvas, plot, edges, heights, *ink),
        Mark::Box { x, at, ink } => quartiles(canvas, plot, *x, at, (*ink, panel.y.scale)),
    }
}

fn band(canvas: &Canvas<'_>, plot: &Plot, points: &[Spread], ink: Ink) -> Result<(), DrawError> {
    if points.len() < 2 {
        return points.iter().try_for_each(|p| {
            let x = plot.x.at(p.x);
            canvas.line(&[(x, plot.y.at(p.low)), (x, plot.y.at(p.high))], ink, 1.0)
        });
    }
    let upper = points.iter().map(|p| plot.at(p.x, p.high));
    let lower = points.iter().rev().map(|p| plot.at(p.x, p.low));
    let path: Vec<At> = upper.chain(lower).collect();
    canvas.area(&path, ink, 0.13)
}

fn bar(canvas: &Canvas<'_>, plot: &Plot, bar: Bar) -> Result<(), DrawError> {
    let (from, to) = (plot.at(bar.x.0, bar.y.1), plot.at(bar.x.1, bar.y.0));
    if (to.1 - from.1).abs() < 0.3 {
        return Ok(());
    }
    if bar.hatched {
        return canvas.hatched(from, to, bar.ink);
    }
    canvas.rect(from, to, bar.ink, 1.0)?;
    canvas.outline(from, to, WHITE, 0.75)
}

fn whisker(canvas: &Canvas<'_>, low: At, high: At, ink: Ink) -> Result<(), DrawError> {
    canvas.line(&[low, high], ink, 1.25)?;
    for end in [low, high] {
        canvas.line(&[(end.0 - 3.0, end.1), (end.0 + 3.0, end.1)], ink, 1.25)?;
    }
    Ok(())
}

fn steps(
    canvas: &Canvas<'_>,
    plot: &Plot,
    edges: &[f64],
    heights: &[f64],
    ink: Ink,
) -> Result<(), DrawError> {
    let mut path = Vec::new();
    for (bin, height) in edges.windows(2).zip(heights) {
        path.push(plot.at(bin[0], *height));
        path.push(plot.at(bin[1], *height));
    }
    let (Some(first), Some(last)) = (path.first().copied(), path.last().copied()) else { return Ok(()) };
    let mut closed = vec![(first.0, plot.bottom)];
    closed.extend(&path);
    closed.push((last.0, plot.bottom));
    canvas.area(&closed, ink, 0.22)?;
    canvas.line(&closed, ink, 1.75)
}

fn quartiles(
    canvas: &Canvas<'_>,
    plot: &Plot,
    x: (f64, f64),
    at: &[f64; 5],
    (ink, scale): (Ink, Scale),
) -> Result<(), DrawError> {
    if scale == Scale::Log && at[0] <= 0.0 {
        return Ok(());
    }
    let (left, right) = (plot.x.at(x.0), plot.x.at(x.1));
    let middle = f64::midpoint(left, right);
    let [low, first, median, third, high] = at.map(|v| plot.y.at(v));
    whisker(canvas, (middle, low), (middle, first), ink)?;
    whisker(canvas, (middle, third), (middle, high), ink)?;
    canvas.rect((left, third), (right, first), WHITE, 1.0)?;
    canvas.rect((left, third), (right, first), ink, 0.3)?;
    canvas.outline((left, third), (right, first), ink, 1.25)?;
    canvas.line(&[(left, median), (right, median)], ink, 2.5)
}

/// Names at the right ends of lines, each joined to its line.
fn line_names(canvas: &Canvas<'_>, plot: &Plot, panel: &Panel) -> Result<(), DrawError> {
    let lines: Vec<(&String, Ink, At, bool)> = panel
        .marks
        .iter()
        .filter_map(|mark| match mark {
            Mark::Line { points, ink, label, width, .. } if !label.is_empty() => {
                points.last().map(|p| (label, *ink, plot.at(p.x, p.value), *width > 2.5))
            }
            _ => None,
        })
        .collect();
    let wanted: Vec<f64> = lines.iter().map(|(_, _, at, _)| at.1).collect();
    let heights = spread(&wanted, NAME_STEP, (plot.top - 4.0, plot.bottom + 4.0));
    for ((label, ink, end, strong), y) in lines.into_iter().zip(heights) {
        let name = (plot.right + LEADER, y);
        canvas.line(&[(end.0 + 6.0, end.1), (name.0 - 3.0, y)], ink, 0.75)?;
        canvas.text(label, name, Face { bold: strong, ..Face::new(NAME_SIZE, ink) })?;
    }
    Ok(())
}

fn point_names(canvas: &Canvas<'_>, plot: &Plot, panel: &Panel) -> Result<(), DrawError> {
    let mut taken = Taken::default();
    for mark in &panel.marks {
        match mark {
            Mark::Named { x, y, .. } => {
                taken.point(plot.at(x.1, y.1), 6.0);
                taken.stretch(plot.at(x.0, y.1), plot.at(x.2, y.1));
            }
            Mark::Line { points, .. } => {
                let path: Vec<At> = points.iter().map(|p| plot.at(p.x, p.value)).collect();
                path.windows(2).for_each(|ends| taken.stretch(ends[0], ends[1]));
            }
            _ => {}
        }
    }
    let bounds = [plot.left, plot.top, plot.right + 8.0, plot.bottom - 3.0];
    for mark in &panel.marks {
        if let Mark::Named { x, y, label, ink, .. } = mark {
            let point = plot.at(x.1, y.1);
            let at = taken.place(label, NAME_SIZE, point, bounds);
            let near = (point.0.clamp(at.0, at.0 + text_width(label, NAME_SIZE)), at.1);
            if (near.0 - point.0).hypot(near.1 - point.1) > 17.0 {
                canvas.line(&[point, near], *ink, 0.5)?;
            }
            canvas.text(label, at, Face::new(NAME_SIZE, *ink))?;
        }
    }
    Ok(())
}
