//! The log stream of a host: the script that sends every log by byte offset, beside the reader of its frames.
//!
//! Uses `shell` and `plan` words. The protocol is described in `assets/follow.sh`.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};

use crate::plan::action::container::DETACH;
use crate::plan::facts::read_exit;
use crate::plan::site::{READ, Site};
use crate::plan::words::{Exit, LogFile};
use crate::shell::{Command, quote};

/// The most bytes of one frame.
pub const FRAME: u64 = 4 << 20;

/// The most unacknowledged bytes of one host, so that all hosts together stay within 64 MiB.
pub fn window(hosts: usize) -> u64 {
    (64 << 20) / hosts.max(1) as u64
}

/// Why the logs are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To follow the run, and to end the gang when a rank fails: the host leaves that to us as long as we are there.
    Guard,
    /// To read on: the host goes by itself.
    Look,
    /// To have everything that is there; then the stream ends.
    Fetch,
}

/// The stream of the site's run, each file from the given offset on; without `logs` it tells of starts and ends alone.
pub fn command(site: &Site, offsets: &[(LogFile, u64)], hosts: usize, purpose: Purpose, logs: bool) -> Command {
    let window = window(hosts).min(8 << 20);
    let flag = |set: bool| if set { "1" } else { "''" };
    let have: String = offsets.iter().map(|(file, offset)| format!("{file}={offset} ")).collect();
    let mut script = format!(
        "{}F={} record={} most={} ranks={} window={window} frame={} once={} guards={} no_logs={} have={} where= note= mark=\n",
        site.preamble(),
        quote(&site.run_files()),
        quote(&site.record()),
        if site.log_max == 0 { "''".to_owned() } else { site.log_max.to_string() },
        site.ranks,
        FRAME.min(window),
        flag(purpose == Purpose::Fetch),
        flag(purpose == Purpose::Guard),
        flag(!logs),
        quote(&format!(" {have}")),
    );
    if !site.old {
        script.push_str(&ends(site));
        script.push_str(&format!("note={}/attached mark=$P/following.{}.$$\n", quote(&site.run_dir()), quote(&site.run)));
    }
    if purpose == Purpose::Fetch && !site.old {
        // A run that lost its record is fetched all the same.
        script.push_str(&format!("[ -e \"$record\" ] || record={}/settings\n", quote(&site.run_dir())));
    }
    if purpose == Purpose::Fetch && site.contained && !site.old {
        script.push_str(&format!(
            "for f in \"$F\"*.log; do if [ -f \"$f\" ] && [ ! -r \"$f\" ]; then {}; break; fi; done\n",
            site.as_root_in_out("for f in \"$0/$1\".*.log; do [ -L \"$f\" ] || chmod a+r \"$f\"; done", &site.run)
        ));
    }
    script.push_str(READ);
    script.push_str(include_str!("../../assets/follow.sh"));
    // What may be unacknowledged, the frame after which the host stops to wait, and all else that it has to say.
    let limit = usize::try_from(window + FRAME.min(window)).unwrap_or(usize::MAX).saturating_add(2 << 20);
    Command { limit, ..Command::sh("follow the logs", script, Duration::from_secs(20)) }
}

/// What the end of a launcher is known by that left no status: the boot in which the run was made, and the container or the keeper.
fn ends(site: &Site) -> String {
    let boot = format!("{{ read -r run_boot <{}; }} 2>/dev/null\n", quote(&site.boot_file()));
    if site.contained {
        return format!(
            "{boot}where=container docker={}\n{{ read -r init id init_start init_boot proven <\"$P/container.pid\"; }} 2>/dev/null\n: \"${{id:={}}}\"\n",
            quote(&site.docker()),
            site.container(),
        );
    }
    // `start_of` and `boot` are those of follow.sh.
    format!(
        "{boot}where=host\n{{ read -r init init_start init_boot <\"$P/keeper.pid\"; }} 2>/dev/null\n{DETACH}\n\
         start_keeper() {{ detach /bin/sh \"$IN/keeper\"; start_of \"$!\"; \
         printf '%s %s %s\\n' \"$!\" \"$s\" \"$boot\" >\"$P/keeper.pid.new\" && mv -f \"$P/keeper.pid.new\" \"$P/keeper.pid\"; }}\n"
    )
}

/// Tells a host that we are no longer there, so that it guards its ranks by itself from now on. Another who is there says so again within 5 s.
pub fn gone(site: &Site) -> Command {
    let script = format!(
        "cd {} 2>/dev/null || exit 0\numask 022\nprintf '%s gone\\n' \"$(date +%s)\" >attached.new && mv -f attached.new attached\n",
        quote(&site.run_dir())
    );
    Command::sh("say that nobody is attached", if site.old { "exit 0\n".to_owned() } else { script }, Duration::from_secs(3))
}

/// Asks a host whether an order from elsewhere has stopped the run, or has removed it already.
pub fn stopped(site: &Site) -> Command {
    let script = format!(
        "{}if [ -e {} ] || [ ! -d \"$P\" ]; then echo stopped; exit 0; fi\n\
         c=; {{ read -r c <\"$P/current\"; }} 2>/dev/null\n[ \"$c\" = {} ] || echo stopped\n",
        site.preamble(),
        quote(&site.stop_mark()),
        quote(&site.run)
    );
    Command::sh("ask who stopped the run", if site.old { "exit 0\n".to_owned() } else { script }, Duration::from_secs(10))
}

/// One message of the stream.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame {
    /// The head of a frame was read; bytes follow as `Bytes`.
    Log {
        /// Which file.
        file: LogFile,
        /// Place of the first byte.
        offset: u64,
        /// The bytes; a frame may come in several pieces.
        bytes: Bytes,
        /// Whether these are the frame's last bytes: now it is acknowledged.
        last: bool,
    },
    /// A wrapper was recorded; the second on the host's clock, 0 where it is not told.
    Started(LogFile, f64),
    /// A wrapper ended, and its log was sent to the end; the second on the host's clock.
    Ended(LogFile, Exit, f64),
    /// A sign of life: free and total KiB under the run directory. It is acknowledged.
    Beat {
        /// KiB.
        free: u64,
        /// KiB.
        total: u64,
    },
    /// The file is shorter than what was sent of it, which may be wrong: it is sent from its beginning.
    Shrunk {
        /// Which file.
        file: LogFile,
        /// Its length when it was seen.
        size: u64,
    },
    /// Bytes of a log are missing from an offset on: why, at least and at most how many. The numbers of an offset may grow.
    Lost {
        /// Which file.
        file: LogFile,
        /// `killed`, `full`, `max` or `more`, as `assets/append.sh` says.
        kind: String,
        /// Where in the log.
        offset: u64,
        /// Bytes.
        least: u64,
        /// Bytes.
        most: u64,
    },
    /// A log has no appender of its own, or one that a signal to the group reaches; as `assets/pipe.sh` says.
    Note(LogFile, String),
    /// Something that a rank wrote is not what it should be, and is left alone: a word that says what, and a name of harmless characters.
    Odd(String, String),
    /// There is no such run directory.
    Nothing,
    /// Everything that was there was sent (`once`).
    Complete,
}

/// The stream is not what was agreed on; it must be dropped and resumed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the log stream is out of step at {0:?}")]
pub struct OutOfStep(pub String);

/// Cuts a byte stream into messages. Holds at most one head line and what one packet brought.
#[derive(Debug, Default)]
pub struct Reader {
    buffer: BytesMut,
    rest: Option<(LogFile, u64, u64)>,
}

impl Reader {
    /// Takes bytes as they arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next message, if it is there.
    ///
    /// # Errors
    /// When a head is none of ours.
    pub fn read(&mut self) -> Result<Option<Frame>, OutOfStep> {
        if let Some((file, offset, left)) = self.rest.take() {
            if self.buffer.is_empty() {
                self.rest = Some((file, offset, left));
                return Ok(None);
            }
            let take = usize::try_from(left).unwrap_or(usize::MAX).min(self.buffer.len()).min(crate::plan::words::LOG_CHUNK);
            let bytes = self.buffer.split_to(take).freeze();
            let left = left - take as u64;
            if left > 0 {
                self.rest = Some((file, offset + take as u64, left));
            }
            return Ok(Some(Frame::Log { file, offset, bytes, last: left == 0 }));
        }
        let Some(end) = memchr::memchr(b'\n', &self.buffer) else {
            return if self.buffer.len() > 4096 { Err(self.lost()) } else { Ok(None) };
        };
        let head = self.buffer.split_to(end);
        self.buffer.advance(1);
        let head = String::from_utf8_lossy(&head).into_owned();
        self.head(&head).ok_or(OutOfStep(head.chars().take(80).collect()))
    }

    fn lost(&self) -> OutOfStep {
        OutOfStep(String::from_utf8_lossy(&self.buffer).chars().take(80).collect())
    }

    fn head(&mut self, head: &str) -> Option<Option<Frame>> {
        let mut words = head.split(' ');
        let kind = words.next()?;
        let mut word = || words.next();
        match kind {
            "F" => {
                let (file, offset, len) = (word()?.parse().ok()?, word()?.parse().ok()?, word()?.parse::<u64>().ok()?);
                if len == 0 || len > FRAME {
                    return None;
                }
                self.rest = Some((file, offset, len));
                self.read().ok()
            }
            "P" => {
                let file = word()?.parse().ok()?;
                Some(Some(Frame::Started(file, words.nth(2).and_then(|t| t.parse().ok()).unwrap_or(0.0))))
            }
            "X" => {
                let file = word()?.parse().ok()?;
                let (exit, at) = read_exit(&words.collect::<Vec<_>>().join(" ")).unwrap_or((Exit::Killed, 0.0));
                Some(Some(Frame::Ended(file, exit, at)))
            }
            "H" => {
                let (_, free, total) = (word()?, word()?.parse().ok()?, word()?.parse().ok()?);
                Some(Some(Frame::Beat { free, total }))
            }
            "S" => Some(Some(Frame::Shrunk { file: word()?.parse().ok()?, size: word()?.parse().ok()? })),
            "W" => Some(Some(Frame::Odd(word()?.chars().take(20).collect(), word()?.chars().take(100).collect()))),
            "L" => {
                let (file, kind) = (word()?.parse().ok()?, word()?.chars().take(20).collect());
                let (offset, least, most) = (word()?.parse().ok()?, word()?.parse().ok()?, word()?.parse().ok()?);
                Some(Some(Frame::Lost { file, kind, offset, least, most }))
            }
            "D" => Some(Some(Frame::Note(word()?.parse().ok()?, words.collect::<Vec<_>>().join(" ").chars().take(200).collect()))),
            "N" => Some(Some(Frame::Nothing)),
            "E" => Some(Some(Frame::Complete)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_in_any_cutting() {
        let text = b"P node 7 99 11.5\nF rank-3.0 10 5\nab\ncdX rank-3.0 7 12.5\nH 1 500 1000\nE\n";
        for size in 1..text.len() {
            let mut reader = Reader::default();
            let (mut frames, mut bytes) = (Vec::new(), Vec::new());
            for piece in text.chunks(size) {
                reader.push(piece);
                while let Some(frame) = reader.read().expect("in step") {
                    match frame {
                        Frame::Log { bytes: b, offset, .. } => {
                            assert_eq!(offset, 10 + bytes.len() as u64);
                            bytes.extend_from_slice(&b);
                        }
                        other => frames.push(other),
                    }
                }
            }
            assert_eq!(bytes, b"ab\ncd");
            let rank = LogFile::Rank { rank: 3, restart: 0 };
            let expected = [
                Frame::Started(LogFile::Node, 11.5),
                Frame::Ended(rank, Exit::Code(7), 12.5),
                Frame::Beat { free: 500, total: 1000 },
                Frame::Complete,
            ];
            assert_eq!(frames, expected);
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the proof is a real shell")]
    fn that_nobody_is_there_can_be_read_by_a_keeper_of_another_user() {
        use std::os::unix::fs::PermissionsExt as _;
        let base = tempfile::tempdir().expect("a folder");
        let site = Site {
            name: "n".to_owned(),
            host: "gpu01".to_owned(),
            run: "run1".to_owned(),
            base: base.path().display().to_string(),
            sudo: false,
            engine: None,
            contained: true,
            token: None,
            old: false,
            log_max: 0,
            ranks: 0,
        };
        std::fs::create_dir_all(site.run_dir()).expect("made");
        let script = format!("umask 077\n{}", gone(&site).script);
        assert!(std::process::Command::new("/bin/sh").args(["-c", &script]).status().expect("a shell").success());
        let note = std::path::Path::new(&site.run_dir()).join("attached");
        assert_eq!(note.metadata().expect("a note").permissions().mode() & 0o777, 0o644);
    }

    #[test]
    fn a_foreign_head_is_out_of_step() {
        let mut reader = Reader::default();
        reader.push(b"Segmentation fault\n");
        assert!(reader.read().is_err());
    }
}
