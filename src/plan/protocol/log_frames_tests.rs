//! Frames cut from any packets, and the file that says who follows.

use super::*;

#[test]
fn frames_parse_at_any_chunk_size() {
    let text = b"P node 7 99 11.5\nF rank-3.0 10 5 3\nab\ncdX rank-3.0 7 12.5\nH 1 500 1000\nE\n";
    for size in 1..text.len() {
        let mut reader = LogFrameReader::default();
        let (mut frames, mut bytes) = (Vec::new(), Vec::new());
        for piece in text.chunks(size) {
            reader.push(piece);
            while let Some(frame) = reader.next_frame().expect("in step") {
                match frame {
                    LogFrame::Data { bytes: b, offset, frame_end, .. } => {
                        assert_eq!(offset, 10 + bytes.len() as u64);
                        bytes.extend_from_slice(&b);
                        assert_eq!(frame_end, (bytes.len() == 5).then_some(3));
                    }
                    other => frames.push(other),
                }
            }
        }
        assert_eq!(bytes, b"ab\ncd");
        let rank = LogFile::Rank { rank: 3, restart: 0 };
        let expected = [
            LogFrame::Started(LogFile::Launcher, 11.5),
            LogFrame::Ended(rank, Exit::Code(7), 12.5),
            LogFrame::Heartbeat { free_kib: 500, total_kib: 1000 },
            LogFrame::Complete,
        ];
        assert_eq!(frames, expected);
    }
}

#[test]
fn attached_file_is_world_readable_after_detach() {
    use std::os::unix::fs::PermissionsExt as _;
    let base = tempfile::tempdir().expect("a folder");
    let context =
        HostContext { run_id: "run1".to_owned(), in_container: true, ..HostContext::new("n", "gpu01", base.path().display().to_string()) };
    std::fs::create_dir_all(context.run_dir()).expect("made");
    let script = format!("umask 077\n{}", detach_command(&context).script);
    assert!(std::process::Command::new("/bin/sh").args(["-c", &script]).status().expect("a shell").success());
    let note = std::path::Path::new(&context.run_dir()).join("attached");
    assert_eq!(note.metadata().expect("a note").permissions().mode() & 0o777, 0o644);
}

#[test]
fn unknown_frame_head_is_an_error() {
    let mut reader = LogFrameReader::default();
    reader.push(b"Segmentation fault\n");
    assert!(reader.next_frame().is_err());
}
