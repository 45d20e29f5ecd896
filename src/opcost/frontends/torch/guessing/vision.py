"""Images for models of transformers, in the forms in which such models take them: whole, as patches, tiles or frames."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from opcost.frontends.torch.guessing.configuration import Configuration
from opcost.frontends.torch.guessing.guess import Maker

_WINDOW = 448
"""Of an image for a model that takes any size: 32 by 32 patches of 14."""
_FRAMES = 8
"""Of a video, where nothing says how many."""

_PLACES = ("image_position_ids", "pixel_position_ids")

Form = dict[str, torch.Tensor]
"""The arguments that bring an image, and what goes with it."""


class Vision:
    """The images of one model, whose forward has arguments of these names and takes inputs of these kinds."""

    def __init__(self, config: Configuration, maker: Maker, names: list[str], kinds: set[str]) -> None:
        self.config = config
        self.maker = maker
        self.names = names
        self.kinds = kinds

    def forms(self) -> Iterator[Form]:
        """What may be meant by an image, the most usual for such a model first."""
        if self.grid_name() is not None:
            yield from self._with_grid()
            return
        if (places := next((name for name in _PLACES if name in self.names), None)) is not None:
            yield self._with_places(places)
            return
        if "aspect_ratio_ids" in self.names:
            yield self._tiled()
            return
        first = {"pixel_values": self.images()}
        yield self._companions(first)
        channels, patch = self.config.channels(), self.config.patch()
        height, width = self.size()
        whole = self.maker.floats(channels, height, width)
        if "image_sizes" in self.names:
            yield {"pixel_values": whole, "image_sizes": self.maker.rows([height, width])}
        if (target := next((name for name in ("target_sizes", "tgt_sizes") if name in self.names), None)) is not None:
            sizes: Form = {target: self.maker.rows([height // patch, width // patch])}
            yield {"pixel_values": whole, **sizes}
            strip = self.maker.empty(1, channels, patch, self.maker.batch * (height // patch) * width)
            yield {"pixel_values": strip, **sizes}  # all patches of all images in one row
        if (count := self.config.number([self.config.own], "num_images")) is not None:
            yield {"pixel_values": self.maker.floats(count, channels, height, width)}
        if (frames := self._frames()) is not None or "video" in self.kinds:
            film = self.maker.floats(frames or _FRAMES, channels, height, width)
            yield from ({"pixel_values": form} for form in (film, film.reshape(-1, *film.shape[2:])))
        if "input_ids" in self.names:  # one of several images of a text, which every token sees
            seen = self.maker.integers(self.maker.tokens(self.config.positions()), 1, value=1)
            one = self.maker.floats(1, channels, height, width)
            yield {"pixel_values": one, "image_attention_mask": seen}
            if "pixel_attention_mask" in self.names:  # which of several cameras there are
                yield {"pixel_values": one, "pixel_attention_mask": self.maker.integers(1, value=1).bool()}
        else:  # two images, which are compared
            yield {"pixel_values": self.maker.floats(2, channels, height, width)}
        patches = (height // patch) * (width // patch)
        flat = self.maker.floats(patches, channels * patch * patch)
        if "input_ids" in self.names:
            yield {"pixel_values": flat.reshape(-1, flat.shape[-1])}
        yield {"pixel_values": flat}

    def _with_grid(self) -> Iterator[Form]:
        """Patches of all images in one row, told apart by their rows and columns: flat, or as small images."""
        rows, columns = self._grid()
        channels, patch = self.config.channels(), self.config.patch()
        depth = self.config.number(self.config.images, "temporal_patch_size", "patch_temporal") or 1
        flat = self.maker.floats(rows * columns, channels * depth * patch * patch)
        grid: Form = {name: self.grid() for name in ("image_grid_thw", "grid_thw") if name in self.names}
        for name in ("merge_sizes", "image_merge_sizes"):
            if name in self.names:
                grid[name] = self.merged()
        if (
            "images_per_sample" in self.names and "image_grid_thw" in grid
        ):  # one that is there, and one that is to be made
            grid["image_grid_thw"] = grid["image_grid_thw"].repeat_interleave(2, 0)
            grid["images_per_sample"] = torch.full((self.maker.batch,), 2, device="cpu")
        yield {"pixel_values": flat.reshape(-1, flat.shape[-1]), **grid}
        small = self.maker.floats(rows * columns, channels, patch, patch)
        yield {"pixel_values": small.reshape(-1, channels, patch, patch), **grid}
        yield {"pixel_values": flat, **grid}

    def _with_places(self, name: str) -> Form:
        """Flat patches, and the column and row of each."""
        config = self.config
        group = config.side("pooling_kernel_size") or 1
        patch = config.patch()
        height, width = (
            max(extent // (patch * group), 1) * group for extent in self.maker.image(config.image_size(_WINDOW))
        )
        places = torch.cartesian_prod(torch.arange(height), torch.arange(width)).flip(-1)
        flat = self.maker.floats(height * width, config.channels() * patch**2)
        return {"pixel_values": flat, name: places.expand(self.maker.batch, -1, -1)}

    def _tiled(self) -> Form:
        """An image that fills the first of several tiles, and in which of the forms that the model knows they lie."""
        tiles = self.config.number(self.config.images, "max_num_tiles") or 1
        there = torch.zeros((self.maker.batch, 1, tiles), dtype=torch.int64, device="cpu")
        there[..., 0] = 1
        return {
            "pixel_values": self.maker.floats(1, tiles, self.config.channels(), *self.size()),
            "aspect_ratio_ids": self.maker.integers(1, value=1),
            "aspect_ratio_mask": there,
        }

    def images(self) -> torch.Tensor:
        """The most usual form."""
        config, maker = self.config, self.maker
        channels, patch = config.channels(), config.patch()
        if self.grid_name() is not None:
            return next(self._with_grid())["pixel_values"]
        if "spatial_shapes" in self.names:
            patches = config.number(config.images, "num_patches") or 256
            return maker.floats(patches, channels * patch * patch)
        height, width = self.size()
        if self.kinds & {"video"} and "image" not in self.kinds:
            return maker.floats(self._frames() or _FRAMES, channels, height, width)
        if "pixel_attention_mask" in self.names and "input_ids" in self.names:  # several images of one text
            return maker.floats(1, channels, height, width)
        if (tiles := self._tiles()) is not None:
            return maker.floats(tiles, channels, height, width)
        return maker.floats(channels, height, width)

    def videos(self) -> torch.Tensor:
        return self.maker.floats(self._frames() or _FRAMES, self.config.channels(), *self.size())

    def flattened(self) -> torch.Tensor:
        """Patches that begin with their row and column."""
        config = self.config
        width = config.number(config.images, "patch_embed_hidden_size") or config.channels() * config.patch() ** 2
        return self.maker.floats(self.maker.tokens(None), 2 + width)

    def grid(self) -> torch.Tensor:
        return self.maker.rows([1, *self._grid()])

    def merged(self) -> torch.Tensor:
        """For each image, how many patches of a row become one token."""
        return torch.full((self.maker.batch,), self._merge(), device="cpu")

    def masked(self) -> torch.Tensor:
        """Which patches are hidden, to be found again: the first half."""
        height, width = self.size()
        each = self.config.patch()
        depth = self.config.number(self.config.images, "tubelet_size")
        patches = (height // each) * (width // each) * ((self._frames() or _FRAMES) // depth if depth else 1)
        return self.maker.rows([int(2 * patch < patches) for patch in range(patches)]).bool()

    def _companions(self, form: Form) -> Form:
        """What goes with a whole image where the model has an argument for it."""
        images = form["pixel_values"]
        detects = self.config.has([self.config.own], "num_queries")
        if "pixel_mask" in self.names and detects:
            form["pixel_mask"] = self.maker.integers(*images.shape[-2:], value=1)
        if "pixel_attention_mask" in self.names:
            form["pixel_attention_mask"] = self._patch_mask(images)
        if "spatial_shapes" in self.names:
            side = int((self.config.number(self.config.images, "num_patches") or 256) ** 0.5)
            form["spatial_shapes"] = self.maker.rows([side, side])
        finer = getattr(getattr(self.config.own, "high_res_vision_config", None), "image_size", None)
        if "high_res_pixel_values" in self.names and finer:  # the same image once more
            form["high_res_pixel_values"] = self.maker.floats(self.config.channels(), finer, finer)
        pinpoints = getattr(self.config.own, "image_grid_pinpoints", None)
        if "image_sizes" in self.names and pinpoints:  # of an image that is cut into several, its size as a whole
            form["image_sizes"] = self.maker.rows(list(pinpoints[0]))
        return form

    def _patch_mask(self, images: torch.Tensor) -> torch.Tensor:
        """Which patches, or which points of several images, are there: all of them."""
        if images.dim() == 3:
            return self.maker.integers(images.shape[1], value=1)
        return torch.ones((*images.shape[:2], *images.shape[-2:]), dtype=torch.bool, device="cpu")

    def size(self) -> tuple[int, int]:
        """Height and width, such that whole windows of patches fill them where the model says how many windows there are."""
        detects = self.config.has([self.config.own], "num_queries")
        height, width = self.maker.image(self.config.image_size(800 if detects else self._finest() or 224))
        if "prompt_pixel_values" in self.names and self.maker.sizes.image is None:  # both lie in one image
            height //= 2
        windows = (
            self.config.number(self.config.images, "num_windows_side", "num_windows")
            if self.maker.sizes.image is None
            else None
        )
        step = self.config.patch() * (windows or 0)
        return (height // step * step or step, width // step * step or step) if step else (height, width)

    def _finest(self) -> int | None:
        """Of a model that reads an image in several sizes too: so large that the smallest of them still is a patch."""
        ratios = getattr(self.config.own, "scaled_images_ratios", None)
        return round(self.config.patch() / min(ratios)) if ratios else None

    def grid_name(self) -> str | None:
        return next((name for name in ("image_grid_thw", "grid_thw") if name in self.names), None)

    def _frames(self) -> int | None:
        return self.config.number(self.config.images, "num_frames", "frames_per_clip")

    def _grid(self) -> tuple[int, int]:
        """Rows and columns of patches, in whole groups of those that become one token."""
        merge = self._merge()
        step = self.config.patch() * merge
        height, width = self.maker.image(self.config.image_size(_WINDOW))
        return max(height // step, 1) * merge, max(width // step, 1) * merge

    def _merge(self) -> int:
        return self.config.side("spatial_merge_size", "merge_size", "merge_kernel_size") or 1

    def _tiles(self) -> int | None:
        """Into how many images one is cut, and once the whole."""
        pinpoints = getattr(self.config.own, "image_grid_pinpoints", None)
        if "image_sizes" not in self.names or not pinpoints:
            return None
        height, width = self.size()
        return int((pinpoints[0][0] // height) * (pinpoints[0][1] // width) + 1)
