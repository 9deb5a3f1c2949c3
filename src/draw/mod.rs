//! Pictures and pages from plain data; nothing here knows what the numbers mean.
//!
//! A [`Picture`] is panels under one title and legend; [`svg`] draws it (on plotters' SVG backend), [`png`]
//! turns the drawing into pixels with a font of its own, and [`page`] sets text, tables and pictures as one
//! HTML file without outside parts. The same data give the same bytes.
//!
//! To add a kind of mark: a variant of [`Mark`] and its arm in `marks.rs`.

mod axes;
mod canvas;
mod labels;
mod marks;
pub mod page;
mod picture;
mod png;
mod svg;
#[cfg(test)]
mod tests;

pub use picture::{Axis, Bar, Ink, Key, Mark, Panel, Picture, Scale, Shape, Spread};
pub use png::png;
pub use svg::svg;

/// Why a picture cannot be drawn.
#[derive(Debug, thiserror::Error)]
pub enum DrawError {
    /// An element cannot be drawn.
    #[error("cannot draw an element: {source}")]
    Element {
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A drawing is not an SVG that can be turned into pixels.
    #[error("the drawing cannot be read back: {source}")]
    Read {
        /// Why.
        source: Box<resvg::usvg::Error>,
    },
    /// A picture has no pixels, or more than fit.
    #[error("no picture can be {width} by {height} pixels")]
    Size {
        /// Its width.
        width: u32,
        /// Its height.
        height: u32,
    },
    /// The pixels cannot be encoded.
    #[error("cannot encode the pixels: {source}")]
    Encode {
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
