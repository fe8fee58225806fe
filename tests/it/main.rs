//! Hale as a whole: one test binary, one module for each subject.

mod config;
