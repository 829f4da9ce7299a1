//! What `docker pull` prints without a terminal: a line for each layer and state, `5f70bf18a086: Pull complete`. Other lines say nothing of
//! layers and are ignored. A host may print anything: lines, their length and the number of layers are bounded, and only numbers get out.

use std::collections::BTreeMap;

use crate::model::layer_counts::LayerCounts;

/// No line of the grammar is longer.
const MAX_LINE_BYTES: usize = 64;
/// Lines after these are not read. A layer has up to seven, and one for each second before a retry.
const MAX_LINES: u32 = 50_000;
/// Docker's images have at most 127.
const MAX_LAYERS: usize = 256;
/// The digits of a layer's id.
const ID_DIGITS: usize = 12;

/// How far a layer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LayerStage {
    Known,
    Downloaded,
    Complete,
}

type LayerId = [u8; ID_DIGITS];

/// Counts layers in the output of a pull, which comes in pieces.
#[derive(Debug, Default)]
pub(crate) struct PullOutputReader {
    /// The beginning of a line that is not complete yet.
    line: Vec<u8>,
    /// Whether the rest of this line is left out.
    skips_line: bool,
    lines: u32,
    layers: BTreeMap<LayerId, LayerStage>,
    counts: LayerCounts,
}

impl PullOutputReader {
    /// Adds output.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        while self.lines < MAX_LINES {
            let Some(end) = memchr::memchr(b'\n', bytes) else {
                self.push_part(bytes);
                return;
            };
            self.push_part(bytes.get(..end).unwrap_or_default());
            bytes = bytes.get(end + 1..).unwrap_or_default();
            self.end_line();
        }
    }

    /// How far the pull is.
    pub(crate) fn counts(&self) -> LayerCounts {
        self.counts
    }

    /// How far a pull is that succeeded: with the containerd image store docker also prints the download of what is no layer, and no more of it.
    pub(crate) fn final_counts(&self) -> LayerCounts {
        let layers = if self.counts.complete > 0 { self.counts.complete } else { self.counts.layers };
        LayerCounts { layers, downloaded: layers, complete: layers }
    }

    fn push_part(&mut self, part: &[u8]) {
        self.skips_line |= self.line.len() + part.len() > MAX_LINE_BYTES;
        if !self.skips_line {
            self.line.extend_from_slice(part);
        }
    }

    fn end_line(&mut self) {
        self.lines += 1;
        if !std::mem::take(&mut self.skips_line)
            && let Some((id, stage)) = parse_layer_line(&self.line)
        {
            self.record_stage(id, stage);
        }
        self.line.clear();
    }

    /// A layer never goes back: docker says `Waiting` again before it tries a download again.
    fn record_stage(&mut self, id: LayerId, stage: LayerStage) {
        let has_room = self.layers.len() < MAX_LAYERS;
        let before = self.layers.get(&id).copied();
        if before.is_some_and(|before| before >= stage) || before.is_none() && !has_room {
            return;
        }
        self.layers.insert(id, stage);
        let is_new = |at: LayerStage| u32::from(stage >= at && before.is_none_or(|before| before < at));
        self.counts.layers += is_new(LayerStage::Known);
        self.counts.downloaded += is_new(LayerStage::Downloaded);
        self.counts.complete += is_new(LayerStage::Complete);
    }
}

/// `<12 hex digits>: <state>`; `None`: any other line.
fn parse_layer_line(line: &[u8]) -> Option<(LayerId, LayerStage)> {
    let (id, rest) = line.split_first_chunk::<ID_DIGITS>()?;
    if !id.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let stage = match rest.strip_prefix(b": ")? {
        b"Pulling fs layer" | b"Waiting" | b"Downloading" | b"Verifying Checksum" => LayerStage::Known,
        b"Download complete" | b"Extracting" => LayerStage::Downloaded,
        b"Pull complete" | b"Already exists" => LayerStage::Complete,
        state if is_retry_countdown(state) => LayerStage::Known,
        _ => return None,
    };
    Some((*id, stage))
}

/// `Retrying in 5 seconds`
fn is_retry_countdown(state: &[u8]) -> bool {
    let Some(rest) = state.strip_prefix(b"Retrying in ") else { return false };
    let number = rest.strip_suffix(b" seconds").or_else(|| rest.strip_suffix(b" second")).unwrap_or_default();
    matches!(number.len(), 1..=4) && number.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &[u8]) -> PullOutputReader {
        let mut reader = PullOutputReader::default();
        reader.push(text);
        reader
    }

    fn counts(layers: u32, downloaded: u32, complete: u32) -> LayerCounts {
        LayerCounts { layers, downloaded, complete }
    }

    /// Docker 20.10, without a terminal.
    const PULL: &str = "1.21: Pulling from library/nginx\n\
        5f70bf18a086: Pulling fs layer\n0f1e2d3c4b5a: Pulling fs layer\naaaaaaaaaaaa: Already exists\n0f1e2d3c4b5a: Waiting\n\
        5f70bf18a086: Verifying Checksum\n5f70bf18a086: Download complete\n0f1e2d3c4b5a: Retrying in 5 seconds\n\
        0f1e2d3c4b5a: Retrying in 1 second\n0f1e2d3c4b5a: Verifying Checksum\n0f1e2d3c4b5a: Download complete\n\
        5f70bf18a086: Pull complete\n0f1e2d3c4b5a: Pull complete\n\
        Digest: sha256:2834dc507516af02784808c5f48b7cbe38b8ed5d0f4837f16e78d00deb7e7767\n\
        Status: Downloaded newer image for nginx:1.21\ndocker.io/library/nginx:1.21\n";

    #[test]
    fn layers_are_counted_as_docker_prints_them() {
        let mut reader = PullOutputReader::default();
        let mut seen = vec![counts(0, 0, 0)];
        for line in PULL.split_inclusive('\n') {
            reader.push(line.as_bytes());
            if seen.last() != Some(&reader.counts()) {
                seen.push(reader.counts());
            }
        }
        let expected =
            [(0, 0, 0), (1, 0, 0), (2, 0, 0), (3, 1, 1), (3, 2, 1), (3, 3, 1), (3, 3, 2), (3, 3, 3)].map(|(l, d, c)| counts(l, d, c));
        assert_eq!(seen, expected);
        assert_eq!(reader.final_counts(), counts(3, 3, 3));
    }

    #[test]
    fn lines_without_a_layer_are_omitted_at_the_end() {
        let reader = read(b"17eec7bbc9d7: Waiting\nea52d2000f90: Waiting\nea52d2000f90: Download complete\n17eec7bbc9d7: Pull complete\n");
        assert_eq!((reader.counts(), reader.final_counts()), (counts(2, 2, 1), counts(1, 1, 1)));
    }

    #[test]
    fn other_lines_are_ignored() {
        for line in [
            "5f70bf18a08: Waiting",
            "5f70bf18a0866: Waiting",
            "5F70BF18A086: Waiting",
            "5f70bf18a086:Waiting",
            "5f70bf18a086: waiting",
            "5f70bf18a086: Waiting ",
            " 5f70bf18a086: Waiting",
            "5f70bf18a086: Waiting\r",
            "5f70bf18a086: Downloading [==>   ]  1MB/2MB",
            "5f70bf18a086: Retrying in 12345 seconds",
            "5f70bf18a086: Retrying in  seconds",
            "5f70bf18a086: Retrying in -1 seconds",
            "5f70bf18a086: Pull complete\u{1b}[2J",
            "Copying blob 5f70bf18a086 done",
            "latest: Pulling from library/nginx",
            "",
        ] {
            assert_eq!(read(format!("{line}\n").as_bytes()).counts(), LayerCounts::default(), "{line:?}");
        }
        assert_eq!(read(b"5f70bf18a086: Waiting").counts(), LayerCounts::default(), "a line without its end");
    }

    #[test]
    fn lines_and_layers_are_bounded() {
        let long = [b"5f70bf18a086: Waiting".repeat(100_000), b"\n5f70bf18a086: Waiting\n".to_vec()].concat();
        let mut reader = PullOutputReader::default();
        for piece in long.chunks(1000) {
            reader.push(piece);
            assert!(reader.line.len() <= MAX_LINE_BYTES);
        }
        assert_eq!(reader.counts(), counts(1, 0, 0));
        let many: String = (0..100_000).map(|n| format!("{n:012x}: Pull complete\n")).collect();
        let reader = read(many.as_bytes());
        assert_eq!((reader.layers.len(), reader.lines, reader.counts().layers), (MAX_LAYERS, MAX_LINES, 256));
    }

    proptest! {
        #[test]
        fn hostile_output_never_breaks_the_counts(
            pieces in prop::collection::vec(
                prop_oneof![
                    prop::collection::vec(any::<u8>(), 0..200),
                    "[0-9a-f]{11,13}: (Waiting|Download complete|Pull complete|Extracting)\n?".prop_map(String::into_bytes),
                    "[0-3]aaaaaaaaaaa: (Waiting|Download complete|Already exists|Pull complete)(\n|\n|\r\n|\u{1b}\n)".prop_map(String::into_bytes),
                ],
                0..60,
            ),
            cut in 1_usize..50,
        ) {
            let text = pieces.concat();
            let whole = read(&text);
            let mut reader = PullOutputReader::default();
            let mut before = LayerCounts::default();
            for piece in text.chunks(cut) {
                reader.push(piece);
                let now = reader.counts();
                prop_assert!(now.is_valid() && reader.line.len() <= MAX_LINE_BYTES && reader.layers.len() <= MAX_LAYERS);
                prop_assert!(now.layers >= before.layers && now.downloaded >= before.downloaded && now.complete >= before.complete);
                before = now;
            }
            prop_assert_eq!(reader.counts(), whole.counts(), "independent of how it is cut");
            prop_assert!(reader.final_counts().is_valid());
        }
    }
}
