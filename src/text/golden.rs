//! Files of the repository that hold what a test expects; `BLESS=1` in the environment rewrites them for review.

use std::path::Path;

/// Whether a file of the repository has this text.
pub(crate) fn matches_golden(file: &str, found: &str) -> bool {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, found).expect("written");
    }
    std::fs::read_to_string(&path).unwrap_or_default() == found
}

/// The same as an assertion.
#[track_caller]
pub(crate) fn assert_golden(file: &str, found: &str) {
    assert!(matches_golden(file, found), "{file} differs; BLESS=1 rewrites it for review. It is now:\n{found}");
}
