//! The few LightGBM calls that training needs, made safe: the only file with `unsafe`.
//!
//! `lightgbm3`'s own wrapper drops dataset parameters (`categorical_feature`, `max_bin`) and checks no lengths,
//! so the C API is called directly. Each call's sizes come from the slices handed over, handles are freed when
//! dropped, a booster holds its dataset, and LightGBM's message is passed on.

#![expect(unsafe_code, reason = "LightGBM is a C library; every call states why it is sound")]

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    ptr,
};

use lightgbm3_sys as ffi;
use thiserror::Error;

/// Why LightGBM could not do its part.
#[derive(Debug, Error)]
pub enum LightGbmError {
    /// The library refused a call.
    #[error("LightGBM, {call}: {message}")]
    Library {
        /// The call.
        call: &'static str,
        /// What it said.
        message: String,
    },
    /// The rows handed over do not fit together.
    #[error("{what}")]
    Shape {
        /// What does not fit.
        what: String,
    },
}

/// Rows of equal length, one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matrix {
    values: Vec<f64>,
    columns: usize,
}

impl Matrix {
    /// Starts an empty matrix of `columns` columns.
    #[must_use]
    pub const fn new(columns: usize) -> Self {
        Self { values: Vec::new(), columns }
    }

    /// Appends a row.
    ///
    /// # Errors
    /// Refuses a row of another length.
    pub fn push(&mut self, row: &[f64]) -> Result<(), LightGbmError> {
        if row.len() != self.columns {
            let what = format!("a row has {} values, the matrix has {} columns", row.len(), self.columns);
            return Err(LightGbmError::Shape { what });
        }
        self.values.extend_from_slice(row);
        Ok(())
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.values.len().checked_div(self.columns).unwrap_or_default()
    }

    /// Returns the rows in order.
    pub fn iter(&self) -> impl Iterator<Item = &[f64]> {
        self.values.chunks_exact(self.columns.max(1))
    }

    /// Returns rows and columns as the C API takes them.
    fn shape(&self) -> Result<(i32, i32), LightGbmError> {
        let fit = |count: usize| i32::try_from(count).ok().filter(|count| *count > 0);
        match (fit(self.rows()), fit(self.columns)) {
            (Some(rows), Some(columns)) => Ok((rows, columns)),
            _ => {
                let what = format!("LightGBM cannot take {} rows of {} columns", self.rows(), self.columns);
                Err(LightGbmError::Shape { what })
            }
        }
    }
}

/// A binned training set.
struct Dataset {
    handle: ffi::DatasetHandle,
}

impl Dataset {
    fn new(
        rows: &Matrix,
        labels: &[f32],
        names: &[String],
        parameters: &CStr,
    ) -> Result<Self, LightGbmError> {
        let (row_count, column_count) = rows.shape()?;
        if labels.len() != rows.rows() || names.len() != rows.columns {
            let what = format!(
                "{} labels and {} names for {} rows of {} columns",
                labels.len(),
                names.len(),
                rows.rows(),
                rows.columns
            );
            return Err(LightGbmError::Shape { what });
        }
        let mut dataset = Self { handle: ptr::null_mut() };
        // SAFETY: the pointer covers rows × columns f64 values (`shape` and `push` keep that product), the
        // parameters are a C string, and LightGBM copies what it needs before it returns.
        let code = unsafe {
            ffi::LGBM_DatasetCreateFromMat(
                rows.values.as_ptr().cast::<c_void>(),
                ffi::C_API_DTYPE_FLOAT64 as c_int,
                row_count,
                column_count,
                1,
                parameters.as_ptr(),
                ptr::null_mut(),
                &raw mut dataset.handle,
            )
        };
        check("making the dataset", code)?;
        // SAFETY: the handle is live and the pointer covers `row_count` f32 values, as checked above.
        let code = unsafe {
            ffi::LGBM_DatasetSetField(
                dataset.handle,
                c"label".as_ptr(),
                labels.as_ptr().cast::<c_void>(),
                row_count,
                ffi::C_API_DTYPE_FLOAT32 as c_int,
            )
        };
        check("setting the labels", code)?;
        let names = names.iter().map(|name| c_string(name)).collect::<Result<Vec<_>, _>>()?;
        let mut pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
        // SAFETY: the handle is live; `pointers` holds `column_count` C strings that outlive the call.
        let code =
            unsafe { ffi::LGBM_DatasetSetFeatureNames(dataset.handle, pointers.as_mut_ptr(), column_count) };
        check("setting the feature names", code)?;
        Ok(dataset)
    }
}

impl Drop for Dataset {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the handle came from LightGBM and is freed once, here.
            let _ = unsafe { ffi::LGBM_DatasetFree(self.handle) };
        }
    }
}

/// A model in LightGBM's hands.
pub struct Booster {
    handle: ffi::BoosterHandle,
    columns: usize,
    /// LightGBM reads the training set as long as the booster lives; freed after it (fields drop in order,
    /// and [`Drop`] runs before them).
    _dataset: Dataset,
}

impl Booster {
    /// Trains for `iterations` rounds (fewer where nothing is left to split), calling `after_round` after each.
    ///
    /// `parameters` are LightGBM's own `key=value` pairs; they go to the dataset and to the booster.
    ///
    /// # Errors
    /// Passes on what LightGBM refused.
    pub fn train(
        rows: &Matrix,
        labels: &[f32],
        names: &[String],
        parameters: &str,
        iterations: u32,
        mut after_round: impl FnMut(u32),
    ) -> Result<Self, LightGbmError> {
        let parameters = c_string(parameters)?;
        let dataset = Dataset::new(rows, labels, names, &parameters)?;
        let mut booster = Self { handle: ptr::null_mut(), columns: rows.columns, _dataset: dataset };
        // SAFETY: the dataset's handle is live and stays so as long as the booster; the rest is as declared.
        let code = unsafe {
            ffi::LGBM_BoosterCreate(booster._dataset.handle, parameters.as_ptr(), &raw mut booster.handle)
        };
        check("making the booster", code)?;
        for round in 1..=iterations {
            let mut finished: c_int = 0;
            // SAFETY: the booster is live, `finished` is an int of ours.
            let code = unsafe { ffi::LGBM_BoosterUpdateOneIter(booster.handle, &raw mut finished) };
            check("training a round", code)?;
            after_round(round);
            if finished != 0 {
                break;
            }
        }
        Ok(booster)
    }

    /// Returns the model in the text format.
    ///
    /// # Errors
    /// Passes on what LightGBM refused.
    pub fn to_text(&self) -> Result<String, LightGbmError> {
        let mut needed: i64 = 0;
        let mut buffer: Vec<u8> = Vec::new();
        // The first call asks for the length (of the text and its final NUL), the second fetches.
        for _ in 0..2 {
            let capacity = usize::try_from(needed).unwrap_or_default();
            buffer.resize(capacity, 0);
            // SAFETY: the booster is live; LightGBM writes at most `capacity` bytes, which `buffer` has.
            let code = unsafe {
                ffi::LGBM_BoosterSaveModelToString(
                    self.handle,
                    0,
                    -1,
                    ffi::C_API_FEATURE_IMPORTANCE_SPLIT as c_int,
                    capacity as i64,
                    &raw mut needed,
                    buffer.as_mut_ptr().cast::<c_char>(),
                )
            };
            check("writing the model", code)?;
        }
        let text = CStr::from_bytes_until_nul(&buffer).ok().and_then(|text| text.to_str().ok());
        let what = || LightGbmError::Shape { what: String::from("LightGBM wrote a model that is not text") };
        text.map(str::to_owned).ok_or_else(what)
    }

    /// Predicts each row with the trees of the first `rounds` rounds; absent: with all.
    ///
    /// # Errors
    /// Refuses rows of another length than those trained on; passes on what LightGBM refused.
    pub fn predict(&self, rows: &Matrix, rounds: Option<u32>) -> Result<Vec<f64>, LightGbmError> {
        let rounds = rounds.and_then(|rounds| c_int::try_from(rounds).ok()).unwrap_or(-1);
        let (row_count, column_count) = rows.shape()?;
        if rows.columns != self.columns {
            let what = format!("rows of {} columns for a model of {}", rows.columns, self.columns);
            return Err(LightGbmError::Shape { what });
        }
        let mut predictions = vec![0.0_f64; rows.rows()];
        let mut written: i64 = 0;
        // SAFETY: the booster is live; the input covers rows × columns values; a model with one output a row
        // (the only kind trained here) writes `row_count` values, which `predictions` has.
        let code = unsafe {
            ffi::LGBM_BoosterPredictForMat(
                self.handle,
                rows.values.as_ptr().cast::<c_void>(),
                ffi::C_API_DTYPE_FLOAT64 as c_int,
                row_count,
                column_count,
                1,
                ffi::C_API_PREDICT_NORMAL as c_int,
                0,
                rounds,
                c"num_threads=1 verbosity=-1".as_ptr(),
                &raw mut written,
                predictions.as_mut_ptr(),
            )
        };
        check("predicting", code)?;
        Ok(predictions)
    }
}

impl Drop for Booster {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the handle came from LightGBM and is freed once, here, before its dataset.
            let _ = unsafe { ffi::LGBM_BoosterFree(self.handle) };
        }
    }
}

fn check(call: &'static str, code: c_int) -> Result<(), LightGbmError> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: LightGBM returns a NUL-terminated string of its own thread; it is copied before the next call.
    let message = unsafe { CStr::from_ptr(ffi::LGBM_GetLastError()) };
    Err(LightGbmError::Library { call, message: message.to_string_lossy().into_owned() })
}

fn c_string(text: &str) -> Result<CString, LightGbmError> {
    CString::new(text).map_err(|_| LightGbmError::Shape { what: format!("`{text}` holds a NUL") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_shapes_are_refused_before_the_library_sees_them() {
        let mut rows = Matrix::new(2);
        assert!(rows.push(&[1.0]).is_err());
        rows.push(&[1.0, 2.0]).unwrap();
        let names = ["a".to_owned(), "b".to_owned()];
        assert!(Booster::train(&rows, &[], &names, "verbosity=-1", 1, |_| {}).is_err());
        assert!(Booster::train(&Matrix::new(2), &[], &names, "verbosity=-1", 1, |_| {}).is_err());
    }

    #[test]
    fn the_librarys_message_is_passed_on() {
        let mut rows = Matrix::new(1);
        (0..50).for_each(|i| rows.push(&[f64::from(i)]).unwrap());
        let labels = [1.0_f32; 50];
        let error =
            Booster::train(&rows, &labels, &["a".to_owned()], "objective=nothing verbosity=-1", 1, |_| {});
        assert!(error.err().unwrap().to_string().contains("nothing"));
    }
}
