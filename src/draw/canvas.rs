//! Strokes and texts in pixels on plotters' SVG backend, which itself knows whole units only: the drawing is
//! made of quarter pixels and shown at a quarter of its size.

use plotters::{
    coord::Shift,
    drawing::IntoDrawingArea,
    element::{Circle, PathElement, Polygon, Rectangle, Text},
    prelude::{DrawingArea, RGBAColor, RGBColor, SVGBackend},
    style::{
        Color, FontDesc, FontFamily, FontStyle, FontTransform, ShapeStyle, TextStyle,
        text_anchor::{HPos, Pos, VPos},
    },
};

use super::{DrawError, Ink, Shape};

/// Units a pixel.
const UNITS: f64 = 4.0;
/// Plotters divides font sizes by this for SVG (plotters-svg 0.3.7, `draw_text`).
const FONT_FACTOR: f64 = 1.24;
/// The fonts asked for, first the one that pixels are made with.
pub(super) const FONTS: &str = "Noto Sans, Helvetica Neue, Arial, sans-serif";
/// Distance between hatch lines, pixels.
const HATCH_STEP: f64 = 5.0;
/// Mean width of a character over its font size in Noto Sans, a little generous.
const CHARACTER: f64 = 0.56;

/// Colours of what is not data.
pub(super) const TEXT: Ink = (34, 40, 49);
pub(super) const SOFT_TEXT: Ink = (92, 101, 112);
pub(super) const GRID: Ink = (229, 232, 236);
pub(super) const AXIS: Ink = (148, 156, 166);
pub(super) const WHITE: Ink = (255, 255, 255);

/// A position, pixels from the left and from the top.
pub(super) type At = (f64, f64);

/// How a text is set.
#[derive(Clone, Copy)]
pub(super) struct Face {
    pub(super) size: f64,
    pub(super) ink: Ink,
    pub(super) bold: bool,
    pub(super) across: HPos,
    pub(super) upright: VPos,
    /// Reads from below upwards.
    pub(super) turned: bool,
}

impl Face {
    pub(super) const fn new(size: f64, ink: Ink) -> Self {
        Self { size, ink, bold: false, across: HPos::Left, upright: VPos::Center, turned: false }
    }

    pub(super) const fn across(mut self, across: HPos) -> Self {
        self.across = across;
        self
    }
}

/// Returns about how wide a text is, pixels.
pub(super) fn text_width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * CHARACTER
}

pub(super) struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
}

impl<'a> Canvas<'a> {
    pub(super) fn new(into: &'a mut String, width: u32, height: u32) -> Self {
        let size = (width * UNITS as u32, height * UNITS as u32);
        Self { area: SVGBackend::with_string(into, size).into_drawing_area() }
    }

    pub(super) fn finish(self) -> Result<(), DrawError> {
        self.area.present().map_err(failed)
    }

    pub(super) fn rect(&self, from: At, to: At, ink: Ink, opacity: f64) -> Result<(), DrawError> {
        let style = paint(ink, opacity, 1.0).filled();
        self.area.draw(&Rectangle::new([units(from), units(to)], style)).map_err(failed)
    }

    pub(super) fn outline(&self, from: At, to: At, ink: Ink, width: f64) -> Result<(), DrawError> {
        self.line(&[from, (to.0, from.1), to, (from.0, to.1), from], ink, width)
    }

    pub(super) fn line(&self, path: &[At], ink: Ink, width: f64) -> Result<(), DrawError> {
        let path: Vec<(i32, i32)> = path.iter().copied().map(units).collect();
        self.area.draw(&PathElement::new(path, paint(ink, 1.0, width))).map_err(failed)
    }

    pub(super) fn dashed(&self, from: At, to: At, ink: Ink, width: f64) -> Result<(), DrawError> {
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let dashes = (dx.hypot(dy) / 9.0).ceil().max(1.0);
        for dash in 0..dashes as u32 {
            let along = |part: f64| {
                let t = ((f64::from(dash) + part) / dashes).min(1.0);
                (from.0 + dx * t, from.1 + dy * t)
            };
            self.line(&[along(0.0), along(0.55)], ink, width)?;
        }
        Ok(())
    }

    pub(super) fn area(&self, path: &[At], ink: Ink, opacity: f64) -> Result<(), DrawError> {
        let path: Vec<(i32, i32)> = path.iter().copied().map(units).collect();
        self.area.draw(&Polygon::new(path, paint(ink, opacity, 1.0).filled())).map_err(failed)
    }

    pub(super) fn dot(&self, at: At, radius: f64, ink: Ink, opacity: f64) -> Result<(), DrawError> {
        let style = paint(ink, opacity, 1.0).filled();
        self.area.draw(&Circle::new(units(at), (radius * UNITS) as i32, style)).map_err(failed)
    }

    /// Draws a light box under slanted lines and an outline.
    pub(super) fn hatched(&self, from: At, to: At, ink: Ink) -> Result<(), DrawError> {
        let (left, right) = (from.0.min(to.0), from.0.max(to.0));
        let (top, bottom) = (from.1.min(to.1), from.1.max(to.1));
        self.rect((left, top), (right, bottom), ink, 0.14)?;
        // Lines x − y = c, rising from left to right, from corner to corner.
        let mut c = ((left + top) / HATCH_STEP).ceil() * HATCH_STEP;
        while c < right + bottom {
            let (x0, x1) = (left.max(c - bottom), right.min(c - top));
            if x1 - x0 > 0.25 {
                self.line(&[(x0, c - x0), (x1, c - x1)], ink, 1.0)?;
            }
            c += HATCH_STEP;
        }
        self.outline((left, top), (right, bottom), ink, 1.0)
    }

    /// Draws a point with a white rim, so that crossing lines stay apart.
    pub(super) fn shape(&self, at: At, shape: Shape, radius: f64, ink: Ink) -> Result<(), DrawError> {
        let (x, y) = at;
        match shape {
            Shape::Circle => {
                self.dot(at, radius + 1.0, WHITE, 1.0)?;
                self.dot(at, radius, ink, 1.0)
            }
            Shape::Cross => {
                let r = radius * 0.85;
                for (width, colour) in [(radius * 0.55 + 2.0, WHITE), (radius * 0.55, ink)] {
                    self.line(&[(x - r, y - r), (x + r, y + r)], colour, width)?;
                    self.line(&[(x - r, y + r), (x + r, y - r)], colour, width)?;
                }
                Ok(())
            }
            Shape::Hatched => self.hatched((x - 7.0, y - 5.0), (x + 7.0, y + 5.0), ink),
            Shape::Line => self.line(&[(x - 7.0, y), (x + 7.0, y)], ink, 2.5),
            Shape::Square | Shape::Triangle | Shape::Diamond => {
                self.area(&corners(at, shape, radius + 1.2), WHITE, 1.0)?;
                self.area(&corners(at, shape, radius), ink, 1.0)
            }
        }
    }

    pub(super) fn text(&self, text: &str, at: At, face: Face) -> Result<(), DrawError> {
        let style = if face.bold { FontStyle::Bold } else { FontStyle::Normal };
        let transform = if face.turned { FontTransform::Rotate270 } else { FontTransform::None };
        let font = FontDesc::new(FontFamily::Name(FONTS), face.size * UNITS * FONT_FACTOR, style);
        let ink = rgb(face.ink);
        let style = TextStyle::from(font.transform(transform))
            .color(&ink)
            .pos(Pos { h_pos: face.across, v_pos: face.upright });
        self.area.draw(&Text::new(text.to_owned(), units(at), style)).map_err(failed)
    }
}

fn corners((x, y): At, shape: Shape, r: f64) -> Vec<At> {
    match shape {
        Shape::Triangle => vec![(x, y - 1.2 * r), (x + 1.1 * r, y + 0.8 * r), (x - 1.1 * r, y + 0.8 * r)],
        Shape::Diamond => vec![(x, y - 1.3 * r), (x + 1.3 * r, y), (x, y + 1.3 * r), (x - 1.3 * r, y)],
        _ => {
            let r = 0.9 * r;
            vec![(x - r, y - r), (x + r, y - r), (x + r, y + r), (x - r, y + r)]
        }
    }
}

fn units((x, y): At) -> (i32, i32) {
    ((x * UNITS).round() as i32, (y * UNITS).round() as i32)
}

fn rgb((red, green, blue): Ink) -> RGBColor {
    RGBColor(red, green, blue)
}

fn paint(ink: Ink, opacity: f64, width: f64) -> ShapeStyle {
    let color: RGBAColor = rgb(ink).mix(opacity);
    color.stroke_width((width * UNITS).round().max(1.0) as u32)
}

fn failed<E>(error: plotters::drawing::DrawingAreaErrorKind<E>) -> DrawError
where
    E: std::error::Error + Send + Sync + 'static,
{
    DrawError::Element { source: Box::new(error) }
}
