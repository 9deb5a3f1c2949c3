//! Pixels from a drawing, with a font of its own: the same on every machine.

use std::sync::Arc;

use resvg::{
    tiny_skia::{Pixmap, Transform},
    usvg::{Options, Tree, fontdb::Database},
};

use super::DrawError;

/// Turns an SVG into a PNG, `scale` pixels a unit of its size.
///
/// # Errors
/// The SVG cannot be read, is too large, or its pixels cannot be encoded.
pub fn png(svg: &str, scale: f32) -> Result<Vec<u8>, DrawError> {
    let mut fonts = Database::new();
    fonts.load_font_data(notosans::REGULAR_TTF.to_vec());
    fonts.load_font_data(notosans::BOLD_TTF.to_vec());
    fonts.set_sans_serif_family("Noto Sans");
    let options = Options { fontdb: Arc::new(fonts), ..Options::default() };
    let tree =
        Tree::from_str(svg, &options).map_err(|source| DrawError::Read { source: Box::new(source) })?;
    let (width, height) =
        ((tree.size().width() * scale).ceil() as u32, (tree.size().height() * scale).ceil() as u32);
    let mut pixels = Pixmap::new(width, height).ok_or(DrawError::Size { width, height })?;
    resvg::render(&tree, Transform::from_scale(scale, scale), &mut pixels.as_mut());
    pixels.encode_png().map_err(|source| DrawError::Encode { source: Box::new(source) })
}
