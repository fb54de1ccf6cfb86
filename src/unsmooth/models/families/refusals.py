"""Models and blocks that no row can describe, with the reason."""

from __future__ import annotations

from unsmooth.models.family import Refusal, of

REFUSED: tuple[Refusal, ...] = (
    Refusal(
        ("timm.ParallelScalingBlock", "timm.DiffParallelScalingBlock"),
        "projects attention and MLP by one weight (out_proj), so what each adds to the stream does not exist by itself",
    ),
    Refusal(
        ("timm.ParallelThingsBlock",),
        "runs several attentions side by side in one layer, so a layer has no single attention output",
    ),
    Refusal(
        (
            *of(
                "timm",
                "CPUBone CSATv2 CoaT DaVit EdgeNeXt EfficientFormer EfficientFormerV2 EfficientVitMsra FastVit "
                "GlobalContextVit Hiera HieraDet Levit LowFormer MaxxVit MetaFormer MobileNetV5 MultiScaleVit Nest "
                "NextViT PoolingVisionTransformer PyramidVisionTransformerV2 SwiftFormer SwinTransformer "
                "SwinTransformerV2 SwinTransformerV2Cr TinyVit Twins VOLO Visformer",
            ),
            *of("torchvision", "MViT SwinTransformer"),
            *of(
                "transformers",
                "CanineModel ClapAudioModel CvtModel DonutSwinModel FunnelBaseModel FunnelModel GroupViTModel "
                "GroupViTVisionModel HieraModel LevitModel PvtModel PvtV2Model SegformerModel Swinv2Model SwinModel",
            ),
        ),
        "merges tokens between its stages, so their number and the width change with depth and no one stream of tokens "
        "runs through all layers: take a model that keeps its tokens, as ViT does",
    ),
    Refusal(
        (
            *of("timm", "MlpMixer"),
            *of(
                "transformers", "FNetModel FalconMambaModel Mamba2Model MambaModel PoolFormerModel RwkvModel xLSTMModel"
            ),
        ),
        "mixes its tokens without attention, so it has neither A nor W_V: take a Transformer",
    ),
    Refusal(
        (
            *of(
                "transformers",
                "BambaModel FalconH1Model GraniteMoeHybridModel JambaModel Lfm2Model MiniMaxModel NemotronHModel "
                "Qwen3NextModel RecurrentGemmaModel Zamba2Model ZambaModel",
            ),
        ),
        "mixes its tokens by a recurrence or a convolution in some layers or beside its attention, so its layers are "
        "not one kind of block with attention: take a Transformer",
    ),
    Refusal(
        ("transformers.MraModel", "transformers.NystromformerModel", "transformers.YosoModel"),
        "approximates its attention and never forms the matrix that it stands for, so A cannot be shown: take the BERT "
        "or RoBERTa that it approximates",
    ),
    Refusal(
        (
            *of(
                "transformers",
                "BigBirdPegasusEncoder BigBirdPegasusModel LEDEncoder LEDModel LongT5EncoderModel LongT5Model "
                "LongT5Stack LongformerModel PegasusXEncoder PegasusXModel ReformerModel",
            ),
        ),
        "attends within windows, blocks or buckets of tokens and keeps only those parts of its matrix, so A over all "
        "tokens cannot be shown: take a model with full attention",
    ),
    Refusal(
        (
            *of("timm", "CrossVit TNT"),
            *of("transformers", "BridgeTowerModel LiltModel LukeModel LxmertModel XLNetModel"),
        ),
        "carries two streams of tokens (words beside entities, layout, pictures or words to predict; large patches "
        "beside small ones), so a layer has no one input and output",
    ),
    Refusal(  # a T5Stack that is an encoder fits its row, which is asked before
        (
            "torch.TransformerDecoder",
            *of(
                "transformers",
                "BartDecoder M2M100Decoder MBartDecoder MarianDecoder PegasusDecoder T5Stack WhisperDecoder",
            ),
        ),
        "is a decoder with a second attention in each layer, to what an encoder gives, so pre + attn = mid and "
        "mid + mlp = post do not hold: take the encoder beside it, or a decoder without an encoder (GPT-2, Llama)",
    ),
    Refusal(
        ("timm.ConVit",),
        "takes its class token in after some of its layers, so the number of tokens changes with depth",
    ),
    Refusal(
        ("timm.Xcit",),
        "attends between features, not between tokens (cross-covariance), so A is no matrix over tokens",
    ),
    Refusal(
        ("transformers.DogeModel",),
        "multiplies the stream by learned weights before each sum, so pre + attn = mid and mid + mlp = post do not "
        "hold",
    ),
    Refusal(
        ("transformers.FlaubertModel", "transformers.XLMModel"),
        "keeps attentions, MLPs and normalisations in lists of their own, so a layer is no module whose input and "
        "output could be taken",
    ),
    Refusal(
        ("transformers.MobileBertModel", "transformers.XmodModel"),
        "has more than one attention and one MLP in a layer (bottlenecks, adapters, stacked MLPs), so pre + attn = mid "
        "and mid + mlp = post do not hold",
    ),
    Refusal(
        ("transformers.ConvBertModel",),
        "convolves beside its attention and joins both before W_proj, so the attention is not Σ A_h X W_V^h W_proj^h",
    ),
    Refusal(
        ("transformers.SqueezeBertModel",),
        "keeps features before tokens and projects by grouped convolutions, so W_V and W_proj are not matrices: take "
        "the BERT that it is made after",
    ),
    Refusal(
        of("transformers", "FastSpeech2ConformerModel ParakeetEncoder Wav2Vec2BertModel Wav2Vec2ConformerModel"),
        "is a Conformer: a layer has two halved MLPs and a convolution beside its attention, so pre + attn = mid and "
        "mid + mlp = post do not hold",
    ),
    Refusal(
        ("transformers.TimesformerModel",),
        "attends over time and over space one after the other, so a layer has no single attention: take VideoMAE or "
        "ViViT, which attend over both at once",
    ),
    Refusal(
        (
            *of("timm", "VisionTransformerSAM"),
            *of("transformers", "SamModel SamVisionModel VitDetModel"),
        ),
        "keeps its tokens on a grid and attends within windows in most layers, so A over all tokens does not exist",
    ),
    Refusal(
        ("transformers.PixtralVisionModel",),
        "puts the pictures of a batch into one sequence, so tokens of several pictures would be measured as one",
    ),
    Refusal(
        ("transformers.JetMoeModel",),
        "sends each token to attention experts of its own, so a layer has no one W_V and W_proj",
    ),
    Refusal(
        ("transformers.Qwen3VLMoeTextModel", "transformers.Qwen3VLTextModel"),
        "adds features of the picture to the stream between its layers, so a layer's output is not the next one's "
        "input",
    ),
    Refusal(
        ("transformers.Gemma3nTextModel",),
        "carries several copies of the stream and predicts each from the others (AltUp), so no one stream of tokens "
        "runs through all layers",
    ),
)
