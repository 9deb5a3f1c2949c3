//! Lays a picture out: title, legend, panels.

use super::{
    DrawError, Key, Picture,
    axes::Plot,
    canvas::{Canvas, Face, SOFT_TEXT, TEXT, WHITE, text_width},
    marks, page,
};

const MARGIN: f64 = 16.0;
const TITLE_SIZE: f64 = 17.0;
const SUBTITLE_SIZE: f64 = 12.5;
const LEGEND_SIZE: f64 = 12.5;
const LEGEND_STEP: f64 = 22.0;
/// Between panels.
const GAP: f64 = 18.0;

/// Draws a picture as one SVG document.
///
/// # Errors
/// [`DrawError::Element`] where an element cannot be drawn.
pub fn svg(picture: &Picture) -> Result<String, DrawError> {
    let columns = picture.columns.clamp(1, picture.panels.len().max(1));
    let rows = picture.panels.len().div_ceil(columns);
    let (width, height) = (f64::from(picture.panel_size.0), f64::from(picture.panel_size.1));
    let inner = columns as f64 * width + (columns - 1) as f64 * GAP;
    let legend = legend_rows(&picture.legend, inner);
    let head = MARGIN
        + 26.0
        + if picture.subtitle.is_empty() { 0.0 } else { 22.0 }
        + legend.len() as f64 * LEGEND_STEP
        + 6.0;
    let full = ((inner + 2.0 * MARGIN).round() as u32, (head + rows as f64 * (height + GAP)).round() as u32);
    let mut text = String::new();
    let canvas = Canvas::new(&mut text, full.0, full.1);
    canvas.rect((0.0, 0.0), (f64::from(full.0), f64::from(full.1)), WHITE, 1.0)?;
    let title = Face { bold: true, ..Face::new(TITLE_SIZE, TEXT) };
    canvas.text(&picture.title, (MARGIN, MARGIN + 10.0), title)?;
    let mut y = MARGIN + 32.0;
    if !picture.subtitle.is_empty() {
        canvas.text(&picture.subtitle, (MARGIN, y), Face::new(SUBTITLE_SIZE, SOFT_TEXT))?;
        y += 22.0;
    }
    for row in legend {
        for (x, key) in row {
            canvas.shape((MARGIN + x + 7.0, y + 2.0), key.shape, 5.0, key.ink)?;
            canvas.text(&key.label, (MARGIN + x + 20.0, y + 2.0), Face::new(LEGEND_SIZE, TEXT))?;
        }
        y += LEGEND_STEP;
    }
    for (i, panel) in picture.panels.iter().enumerate() {
        let corner =
            (MARGIN + (i % columns) as f64 * (width + GAP), head + (i / columns) as f64 * (height + GAP));
        let plot = Plot::new(panel, corner, (width, height), marks::room_beside(panel));
        plot.frame(&canvas, panel)?;
        marks::draw(&canvas, &plot, panel)?;
    }
    canvas.finish()?;
    Ok(sized(&text, full, &picture.title))
}

/// Puts keys into rows, each with its distance from the left.
fn legend_rows(keys: &[Key], width: f64) -> Vec<Vec<(f64, &Key)>> {
    let mut rows: Vec<Vec<(f64, &Key)>> = Vec::new();
    let mut x = f64::INFINITY;
    for key in keys {
        let needs = text_width(&key.label, LEGEND_SIZE) + 38.0;
        if x + needs > width {
            rows.push(Vec::new());
            x = 0.0;
        }
        if let Some(row) = rows.last_mut() {
            row.push((x, key));
        }
        x += needs;
    }
    rows
}

/// Shows the drawing's units at the picture's size and names it for those who hear it read.
fn sized(text: &str, (width, height): (u32, u32), title: &str) -> String {
    let Some((_, rest)) = text.split_once(" viewBox=") else { return text.to_owned() };
    let Some((view, body)) = rest.split_once('>') else { return text.to_owned() };
    let title = page::escaped(title);
    format!(
        "<svg width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{title}\" viewBox={view}>\n\
         <title>{title}</title>{body}"
    )
}
