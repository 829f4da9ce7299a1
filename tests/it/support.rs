//! Helpers of the integration tests. Nothing here sleeps for a fixed time and hopes: every wait is for a condition.

mod fixture;
mod free_port;
mod laptop;

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

pub(crate) use fixture::{JobSpec, SandboxFixture};
pub(crate) use laptop::{CliOutput, CliProcess, Laptop};

/// The limit for any single wait. Reaching it is a failure; a passing test never waits for it.
const TEST_TIMEOUT: Duration = Duration::from_secs(300);

/// Polls until `probe` returns a value.
pub(crate) async fn wait_until<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        if let Some(value) = probe().await {
            return value;
        }
        assert!(Instant::now() < deadline, "timed out: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a String");
        text
    })
}

/// The path as a command-line argument.
pub(crate) fn path_str(path: &Path) -> &str {
    path.to_str().expect("text")
}
